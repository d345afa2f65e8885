from posttrain.contract.runner import main
from steps.gateway import SPEC

if __name__ == "__main__":
    main(SPEC)
