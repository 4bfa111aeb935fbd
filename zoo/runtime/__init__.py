"""What commands need around their work: the command line, signals, start-up, locks, cores, extras and Beam."""
