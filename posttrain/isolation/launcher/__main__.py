from posttrain.isolation.launcher.server import main

if __name__ == "__main__":
    main()
