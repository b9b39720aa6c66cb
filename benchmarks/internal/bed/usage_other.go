//go:build !unix

package bed

import "time"

// CPU is not known here.
func CPU() (taken time.Duration, ok bool) { return 0, false }
