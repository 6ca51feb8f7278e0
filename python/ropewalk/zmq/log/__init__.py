"""Log records over sockets: `handlers` publishes them, and ``python -m ropewalk.zmq.log URL`` prints them."""
