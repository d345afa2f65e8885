"""Models to start from: brought into the workspace as Hugging Face directories, checked, named by digest."""
