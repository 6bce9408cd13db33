// Telegraf's input for RabbitMQ, gathered twice with the configuration of the first argument. What it measured is printed as
// one JSON object a line: name, tags, fields. An error of the input ends the program with 1.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/influxdata/telegraf"
	"github.com/influxdata/telegraf/agent"
	"github.com/influxdata/telegraf/config"
	_ "github.com/influxdata/telegraf/plugins/inputs/rabbitmq"
)

// kept fails on what the input reports beside its result.
type kept struct {
	telegraf.Accumulator
	errors int
}

func (k *kept) AddError(err error) {
	if err != nil {
		k.errors++
		fmt.Fprintln(os.Stderr, err)
	}
}

func run() error {
	all := config.NewConfig()
	if err := all.LoadConfigData([]byte(os.Args[1]), "argument"); err != nil {
		return err
	}
	input := all.Inputs[0]
	if err := input.Init(); err != nil {
		return err
	}
	for range 2 {
		metrics := make(chan telegraf.Metric, 1<<17)
		accumulator := &kept{Accumulator: agent.NewAccumulator(input, metrics)}
		if err := input.Input.Gather(accumulator); err != nil {
			return err
		}
		if accumulator.errors > 0 {
			return fmt.Errorf("%d errors", accumulator.errors)
		}
		close(metrics)
		for metric := range metrics {
			line, err := json.Marshal(map[string]any{"name": metric.Name(), "tags": metric.Tags(), "fields": metric.Fields()})
			if err != nil {
				return err
			}
			fmt.Println(string(line))
		}
		time.Sleep(1100 * time.Millisecond)
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
