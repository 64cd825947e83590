"""An adapter for Google's Model Explorer: it shows `.pte` files, delegates opened.

    model-explorer model.pte --extensions=edgewise.model_explorer

Model Explorer is the extra `model-explorer`.
"""
