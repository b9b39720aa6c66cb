// Command fanoutvet finds events that are raised on copies of aggregates, and so lost:
//
//	go install github.com/gorm-fanout/fanout/fanoutvet/cmd/fanoutvet@latest
//	go vet -vettool=$(which fanoutvet) ./...
//
// Without go vet it is "fanoutvet ./...", and "fanoutvet -fix ./..." applies the changes that it
// suggests. It exits with 0 when it has found nothing.
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/gorm-fanout/fanout/fanoutvet"
)

func main() { singlechecker.Main(fanoutvet.Analyzer) }
