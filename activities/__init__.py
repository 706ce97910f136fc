"""How the turn touches the world. One class a file, dependencies injected, methods are activities."""
