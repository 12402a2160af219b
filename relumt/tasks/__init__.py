"""fairseq imports the modules of this folder for `--user-dir`; the tasks are in `relumt.plugin.tasks`."""
