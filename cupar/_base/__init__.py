"""What all rooms use: forks, errors, warnings, log lines, data classes, generated Python."""
