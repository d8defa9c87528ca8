"""What each code of a finding means."""
