// Command worker is a process of the chaos rig, which builds and starts it: see
// docs/reliability.md.
package main

import (
	"os"

	"github.com/gorm-fanout/fanout/integration/chaos/worker"
)

func main() { os.Exit(worker.Main()) }
