"""`python -m handrail`: the command line, where the script `handrail` is not on PATH."""

from handrail.cli import main

if __name__ == "__main__":
    main(prog_name="handrail")
