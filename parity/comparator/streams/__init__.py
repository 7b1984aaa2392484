"""Two token streams side by side: which pair up, where they part, where they meet again."""
