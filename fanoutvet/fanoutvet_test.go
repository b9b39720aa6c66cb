package fanoutvet_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/gorm-fanout/fanout/fanoutvet"
)

// What is reported, what is not, and what functions are known to do, stands beside the code in
// testdata/shop; what the fixes make of it in the golden files.
func TestReports(t *testing.T) {
	t.Parallel()
	analysistest.RunWithSuggestedFixes(t, shop(t), fanoutvet.Analyzer, "./...")
}
