"""HTTP servers of this machine: whom they answer, and how they live and end.

guard    what stands before an application: the name it is called by, the token, the size of a request
tokens   the token that requests must carry, and the addresses that need none
server   the port, and an application behind it until the process is interrupted
"""
