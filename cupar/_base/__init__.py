"""What everybody uses: forks, warnings, log lines, threads."""
