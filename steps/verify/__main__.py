from posttrain.contract.runner import main
from steps.verify import SPEC

if __name__ == "__main__":
    main(SPEC)
