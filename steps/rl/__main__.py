from posttrain.contract.runner import main
from steps.rl import SPEC

if __name__ == "__main__":
    main(SPEC)
