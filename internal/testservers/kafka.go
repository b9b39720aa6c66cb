package testservers

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const kafkaVersion = "4.1.1" // of the one that is fetched

var kafka = &kind{
	flag: "kafka", name: "Kafka", variable: KafkaVariable, binVariable: KafkaLibVariable,
	find: nowhere, fetch: fetchKafka, tool: "mvn",
	launch: func(ctx context.Context, libs string) (*Own, error) {
		nodes, err := newKafkaNodes(ctx, libs, 1)
		if err != nil {
			return nil, err
		}
		return nodes[0].begin(ctx)
	},
	remedy: "Install Java 17 and Maven, which fetches it",
}

// kafkaProject has Maven copy a Kafka with its dependencies, and a logger that writes to standard error.
const kafkaProject = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fanout</groupId>
  <artifactId>test-kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + kafkaVersion + `</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

func fetchKafka(ctx context.Context, log io.Writer) (string, error) {
	dir, err := cached(log, "kafka-"+kafkaVersion, "Kafka "+kafkaVersion+" with Maven", func(dir string) error {
		project := filepath.Join(dir, "pom.xml")
		if err := os.WriteFile(project, []byte(kafkaProject), 0o600); err != nil {
			return err
		}
		_, err := execute(ctx, "mvn", "--batch-mode", "--quiet", "--file", project,
			"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(dir, "libs"))
		return err
	})
	return filepath.Join(dir, "libs"), err
}

// OwnKafka is [OwnKafkaCluster] of one node. URL is its address.
func OwnKafka(ctx context.Context) (*Own, error) {
	cluster, err := OwnKafkaCluster(ctx, 1)
	if err != nil {
		return nil, err
	}
	return cluster.Nodes[0], nil
}

// KafkaCluster is a cluster whose nodes can be killed one by one. Each is broker and controller. Topics
// have as many replicas as there are nodes by default, and most of them confirm (min.insync.replicas).
type KafkaCluster struct {
	Nodes []*Own // of which the first has id 1, and so on
}

// A KafkaListener is one that each node has beside that of its URL. The first node that a client asks tells
// it the addresses of all nodes; by a listener of its own, it is told those of its proxies.
type KafkaListener struct {
	Name string // of capital letters, digits and underscores
	// Advertise returns the address that clients of the listener are told for a node, by its id and the
	// address at which it listens.
	Advertise func(node int, address string) (string, error)
}

// OwnKafkaCluster starts a new cluster of n nodes, with listeners of the caller's. Errors are those of
// [OwnRedis].
func OwnKafkaCluster(ctx context.Context, n int, further ...KafkaListener) (*KafkaCluster, error) {
	libs, err := binary(KafkaLibVariable)
	if err != nil {
		return nil, err
	}
	nodes, err := newKafkaNodes(ctx, libs, n, further...)
	if err != nil {
		return nil, err
	}
	cluster := &KafkaCluster{}
	for _, node := range nodes {
		cluster.Nodes = append(cluster.Nodes, node.Own)
	}
	return cluster, beginAll(ctx, cluster.Nodes)
}

// URL has the addresses of all nodes, with commas between.
func (c *KafkaCluster) URL() string {
	var addresses []string
	for _, node := range c.Nodes {
		addresses = append(addresses, node.URL)
	}
	return strings.Join(addresses, ",")
}

// Close ends the nodes that run, and removes their files.
func (c *KafkaCluster) Close() error { return closeAll(c.Nodes) }

// kafkaNode is one node of a cluster, broker and controller in one process (KRaft).
type kafkaNode struct {
	*Own

	id      int
	voters  []string // the addresses of all controllers, by id from 1 on
	further []furtherListener
}

// furtherListener is a node's of a [KafkaListener].
type furtherListener struct{ name, address, advertised string }

// newKafkaNodes prepares the nodes of a new cluster.
func newKafkaNodes(ctx context.Context, libs string, n int, further ...KafkaListener) (nodes []*kafkaNode, err error) {
	defer func() {
		if err != nil {
			for _, node := range nodes {
				err = errors.Join(err, node.files.remove())
			}
		}
	}()
	var id [16]byte
	_, _ = rand.Read(id[:]) // which never fails
	id[0] &= 0x7f           // no tool takes it for an option: one with a high first bit can begin with a hyphen
	cluster := base64.RawURLEncoding.EncodeToString(id[:])
	var voters []string
	for range n {
		address, err := freeAddress(ctx)
		if err != nil {
			return nil, err
		}
		voters = append(voters, address)
	}
	for i := range n {
		files, err := newWorkspace("kafka", false)
		if err != nil {
			return nodes, err
		}
		node := &kafkaNode{id: i + 1, voters: voters}
		node.Own = &Own{
			Name: "Kafka", Version: jarVersion(libs), files: files,
			ready: listens, // to clients, which it does after the controller has unfenced it
			// A node that ends politely asks the others before, and waits for those that are gone.
			shutdown: []child.Step{{Signal: syscall.SIGKILL, Patience: 10 * time.Second}},
			url:      func(address string) string { return address },
			command: func(port string) *exec.Cmd {
				cmd := files.kafka(ctx, libs, "kafka.Kafka", files.path("server.properties"))
				if err := node.configure(port); err != nil {
					cmd.Err = err // of its start
				}
				return cmd
			},
		}
		nodes = append(nodes, node)
		if err := node.listen(ctx, further); err != nil {
			return nodes, err
		}
		if err := node.configure("0"); err != nil {
			return nodes, err
		}
		if err := files.run(files.kafka(ctx, libs, "kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", files.path("server.properties"))); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// jarVersion is the version of the Kafka in a directory, by the name of its jar.
func jarVersion(libs string) string {
	jars, _ := filepath.Glob(filepath.Join(libs, "kafka-clients-*.jar")) // fails for a malformed pattern only
	if len(jars) == 0 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), "kafka-clients-"), ".jar")
}

func freeAddress(ctx context.Context) (string, error) {
	port, err := FreePort(ctx)
	return loopback(port), err
}

// listen finds the addresses of the listeners beside the usual one.
func (n *kafkaNode) listen(ctx context.Context, further []KafkaListener) error {
	for _, listener := range further {
		address, err := freeAddress(ctx)
		if err != nil {
			return err
		}
		advertised, err := listener.Advertise(n.id, address)
		if err != nil {
			return fmt.Errorf("testservers: the address of listener %s of Kafka: %w", listener.Name, err)
		}
		n.further = append(n.further, furtherListener{listener.Name, address, advertised})
	}
	return nil
}

// configure writes the node's settings, with its port.
func (n *kafkaNode) configure(port string) error {
	listeners, security := []string{"CLIENTS://" + loopback(port)}, []string{"CLIENTS:PLAINTEXT", "CONTROLLER:PLAINTEXT"}
	advertised := slices.Clone(listeners)
	for _, l := range n.further {
		listeners, advertised = append(listeners, l.name+"://"+l.address), append(advertised, l.name+"://"+l.advertised)
		security = append(security, l.name+":PLAINTEXT")
	}
	listeners = append(listeners, "CONTROLLER://"+n.voters[n.id-1])
	voters := make([]string, len(n.voters))
	for i, address := range n.voters {
		voters[i] = strconv.Itoa(i+1) + "@" + address
	}
	replicas := strconv.Itoa(len(voters))
	confirming := strconv.Itoa(len(voters)/2 + 1)
	all := []string{
		"process.roles=broker,controller",
		"node.id=" + strconv.Itoa(n.id),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=CLIENTS",
		"listener.security.protocol.map=" + strings.Join(security, ","),
		"listeners=" + strings.Join(listeners, ","),
		"advertised.listeners=" + strings.Join(advertised, ","),
		"log.dirs=" + n.files.path("data"),
		"default.replication.factor=" + replicas,
		"min.insync.replicas=" + confirming,
		"offsets.topic.replication.factor=" + replicas,
		"offsets.topic.num.partitions=4", // there are 50 times three files otherwise
		"transaction.state.log.replication.factor=" + replicas,
		"transaction.state.log.min.isr=" + confirming,
	}
	if len(voters) == 1 {
		all = append(all, "group.initial.rebalance.delay.ms=0") // each group of a test has to wait 3 s otherwise
	}
	if err := os.WriteFile(n.files.path("server.properties"), []byte(strings.Join(append(all, ""), "\n")), 0o600); err != nil {
		return fmt.Errorf("testservers: configure Kafka: %w", err)
	}
	return nil
}

// kafka is a class of Kafka with its arguments.
func (w *workspace) kafka(ctx context.Context, libs, class string, args ...string) *exec.Cmd {
	return w.java(ctx, append([]string{"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(libs, "*"), class}, args...)...)
}
