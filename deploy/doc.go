// Package deploy has what operators give to other programs: alert rules for Prometheus and a
// dashboard for Grafana. It is a module of its own, since its tests check them with Prometheus'
// libraries, as promtool does, and these are large. See docs/metrics.md.
package deploy
