"""The `relumt` subcommands, one module each, which `relumt.cli` imports by name."""
