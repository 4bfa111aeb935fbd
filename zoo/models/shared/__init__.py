"""Parts of models of several families: options, and layers made from them."""
