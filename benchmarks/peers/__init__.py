"""The same five stages on other durable runtimes. These files run in `build/bench-venv`, never beside the product.

They import each other by bare name, because each is started as a script, and nothing of Retold.
"""
