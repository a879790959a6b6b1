"""Planning: a spec is checked and described before anything is started or recorded."""
