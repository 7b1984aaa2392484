"""A parity kit: runs the arms of its plan with the Python that runs this, and writes one file to send back.

    python parity-kit-cuda.pyz [--minutes 15] [--list]

It needs the engine and the standard library, installs nothing, opens no connection. --list says what it would do, and
does nothing; `unzip parity-kit-cuda.pyz` shows every line of it. Made by `parity kit`; what it writes is read by
`parity compare FILE`. Python 3.9 or newer.
"""
