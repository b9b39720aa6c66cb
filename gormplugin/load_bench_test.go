package gormplugin_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// BenchmarkLoad compares what reading aggregates costs with the plugin and without it, of which the
// recorders that it gives them are the most: make bench-commit ARGS="-bench=Load". Rounds
// alternate, and the ratio is the median over all.
func BenchmarkLoad(b *testing.B) {
	c := newCommitPath(b, sqliteBench(b), gorm.Config{})
	for _, n := range []int{1, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			orders := make([]commitOrder, n)
			for i := range orders {
				orders[i].ID = "loaded " + strconv.Itoa(n) + " " + strconv.Itoa(i)
			}
			require.NoError(b, c.plain.CreateInBatches(orders, 100).Error)
			read := func(db *gorm.DB) float64 {
				var read []commitOrder
				start := time.Now()
				require.NoError(b, db.Where("id LIKE ?", "loaded "+strconv.Itoa(n)+" %").Find(&read).Error)
				require.Len(b, read, n)
				return float64(time.Since(start))
			}
			var ratios []float64
			for b.Loop() {
				without := read(c.plain)
				ratios = append(ratios, read(c.plugin)/without)
			}
			b.ReportMetric(median(ratios), "with/without")
		})
	}
}
