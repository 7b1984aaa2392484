"""`parity-ray`: a command prefix that leads to a node of an existing Ray cluster.

Ray schedules: this asks for resources and passes bytes on. It needs the extra `ray`; nothing else imports it.
"""
