from posttrain.contract.runner import main
from steps.prepare_model import SPEC

if __name__ == "__main__":
    main(SPEC)
