// Package deploy has what operators give to other programs: a base for Kustomize, a unit of systemd and a
// system for Docker Compose, alert rules for Prometheus and a dashboard for Grafana. It is a module of its
// own, since its tests check them with the libraries of these programs, which are large: Prometheus' as
// promtool does, Kustomize's, Compose's and BuildKit's. See docs/operations.md and docs/metrics.md.
package deploy
