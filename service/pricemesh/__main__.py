from pricemesh.cli import main

main()
