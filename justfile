# `just check` is scripts/check; the script is the thing, and just is not needed.

# Everything a change must pass.
check *arguments:
    scripts/check {{ arguments }}
