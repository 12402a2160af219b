"""The `relumt` subcommands, a module for each kind of work, which `relumt.cli` imports when one of its commands runs.

A command NAME is a function `NAME(arguments)`, whose docstring is the description in `--help`, with a function
`add_NAME_arguments(parser)` unless it has no arguments. Both import what takes long when they need it: torch and
fairseq take seconds to load.
"""
