"""How a trained model uses position: what it attends to, and how far back it reads."""
