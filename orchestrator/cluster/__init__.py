"""Ray's side of a command: connection, addresses, capacity, settings of data tasks, and the doctor's findings."""
