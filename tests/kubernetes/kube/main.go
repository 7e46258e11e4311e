// SPDX-License-Identifier: Apache-2.0

// kube is one program with what a Kubernetes cluster of one node consists of. The name by which it is
// called chooses the component; script/cluster makes a link for each.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func runKubectl() int {
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // does not return
	}
	return 0
}

func main() {
	components := map[string]func() int{
		"etcd":           func() int { etcdmain.Main(os.Args); return 0 },
		"kube-apiserver": func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func() int {
			return cli.Run(controllers.NewControllerManagerCommand())
		},
		"kube-proxy":     func() int { return cli.Run(proxy.NewProxyCommand()) },
		"kube-scheduler": func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
		"kubectl":        runKubectl,
		"kubelet": func() int {
			return cli.Run(kubelet.NewKubeletCommand(context.Background()))
		},
	}
	run, ok := components[filepath.Base(os.Args[0])]
	if !ok {
		var names []string
		for name := range components {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintln(os.Stderr, "call this program by one of these names:", strings.Join(names, " "))
		os.Exit(2)
	}
	os.Exit(run())
}
