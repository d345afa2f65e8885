from posttrain.contract.runner import main
from steps.prepare_data import SPEC

if __name__ == "__main__":
    main(SPEC)
