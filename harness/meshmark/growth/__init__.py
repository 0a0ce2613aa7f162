"""What a program costs from 4 to 8,192 devices, compiled only."""
