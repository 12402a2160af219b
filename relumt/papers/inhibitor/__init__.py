"""The three experiments of [IN] (Brännvall 2023), each a program of its own."""
