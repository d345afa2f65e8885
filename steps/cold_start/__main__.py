from posttrain.contract.runner import main
from steps.cold_start import SPEC

if __name__ == "__main__":
    main(SPEC)
