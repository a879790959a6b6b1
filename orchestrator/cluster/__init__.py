"""Ray: a connection for one command, its data tasks' settings, and what may be wrong here."""
