"""What a spec needs and what forbids it, told before anything starts."""
