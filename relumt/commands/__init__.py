"""The `relumt` subcommands, one module each. Nothing imports them but `relumt.cli`."""
