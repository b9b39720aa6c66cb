package report

import (
	"math"
	"slices"
	"time"
)

// Median is the middle of the values, the mean of the two in the middle where their number is even,
// and 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// Percentile is the smallest of the times that is at least as long as the given share of them, from
// 0 to 1; 0 of none.
func Percentile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(share*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// Milliseconds of a time.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
