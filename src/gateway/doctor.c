// SPDX-License-Identifier: Apache-2.0
// kernelgate doctor: tries what serve would do.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "account_folder.h"
#include "choices.h"
#include "gateway.h"
#include "loop.h"
#include "privileges.h"

static void
print_finding(const char *what, bool ok, const char *detail, void *arg)
{
    (void)arg;
    printf("%-4s %-24s %s\n", ok ? "ok" : "--", what, detail);
}

static void
show_kernels(const struct engine_settings *engine, const struct kernelspecs *specs,
             const struct layout *layout)
{
    for (size_t i = 0; i < kernelspecs_count(specs); i++) {
        const struct kernelspec *spec = kernelspecs_at(specs, i);
        KG_AUTO_FREE char *dir = kg_asprintf("%s/%s", layout->kernels_dir, spec->name);
        KG_AUTO_FREE char *what = kg_asprintf("kernel %s", spec->name);
        bool there = engine_has_program(&engine->settings, spec);
        KG_AUTO_FREE char *missing =
            kg_asprintf("no environment at %s; kernelspec/%s/install makes it, and script/setup in "
                        "the project's folder",
                        dir, spec->name);
        const char *program = json_string_value(json_array_get(spec->argv, 0));
        const char *where = access(dir, F_OK) == 0 ? dir : program;
        print_finding(what, there, there ? where : missing, NULL);
    }
}

// Whether the default kernel can start in the sandboxes of the engine that was found.
static bool
has_default_kernel(const struct engine_settings *engine, const struct choices *choices)
{
    bool sees_host =
        strcmp(choices->traits.engine, "oci") == 0 && strcmp(choices->config->image, "host") == 0;
    return !sees_host || engine_has_program(&engine->settings, choices->default_spec);
}

// ---- Whom the gateway becomes ---------------------------------------------------------------

static bool
check_accounts(const struct config *config, const struct privileges_user *user)
{
    struct kg_error err;
    bool works =
        !config->accounts_file || account_folder_check(config->accounts_file, user->uid, &err) == 0;
    if (config->accounts_file)
        print_finding("accounts", works, works ? config->accounts_file : err.message, NULL);
    return works;
}

static bool
check_user(const struct config *config)
{
    struct privileges_user user;
    struct kg_error err;
    bool is_roots = geteuid() == 0 && strcmp(config->provisioner, "kubernetes") != 0;
    if (!is_roots)
        return true;
    if (config->user && strcmp(config->user, "root") == 0) {
        print_finding("gateway's user", false, "it stays root: setting user", NULL);
        return true;
    }
    if (privileges_user_find(config->user, &user, &err) < 0) {
        print_finding("gateway's user", false, err.message, NULL);
        return false;
    }
    KG_AUTO_FREE char *detail =
        kg_asprintf("%s; root's rights stay with a helper, which parses nothing", user.name);
    print_finding("gateway's user", true, detail, NULL);
    return check_accounts(config, &user);
}

// ---- The runtimes ---------------------------------------------------------------------------

struct version {
    struct loop *loop;
    char line[128];
};

static void
version_on_end(const struct loop_process_result *result, void *arg)
{
    struct version *version = arg;
    if (result->exit_code == 0)
        snprintf(version->line, sizeof version->line, "%.*s", (int)strcspn(result->output, "\n"),
                 result->output);
    loop_stop(version->loop);
}

static void
show_version(const char *runtime)
{
    const char *const argv[] = {runtime, "--version", NULL};
    const struct loop_process_spec spec = {.argv = argv, .timeout_ms = 10 * 1000};
    struct kg_error err;
    KG_AUTO(loop) loop = loop_new();
    struct version version = {.loop = loop};
    if (!loop_process_start(loop, &spec, version_on_end, &version, &err))
        return; // it is not there, which the engine's own findings say
    loop_run(loop);
    KG_AUTO_FREE char *what = kg_asprintf("version of %s", runtime);
    if (version.line[0])
        print_finding(what, true, version.line, NULL);
}

// Whether the sandboxes' image contains the kernels.
static bool
has_image(const struct config *config)
{
    return strcmp(config->provisioner, "docker") == 0 ||
           strcmp(config->provisioner, "kubernetes") == 0;
}

static void
show_versions(const struct config *config)
{
    if (has_image(config))
        return;
    if (strcmp(config->oci_runtime, "auto") != 0) {
        show_version(config->oci_runtime);
        return;
    }
    show_version("runc");
    show_version("crun");
}

// ---- What is on -----------------------------------------------------------------------------

static void
print_choice(const char *what, bool on, const char *detail, void *arg)
{
    (void)arg;
    printf("%-4s %-24s %s\n", on ? "on" : "off", what, detail);
}

static void
show_choices(const struct choices *choices)
{
    puts("\nWith these settings, serve has:");
    choices_say(choices, print_choice, NULL);
}

// ---- The command ----------------------------------------------------------------------------

static int
examine(const struct config *config)
{
    struct kg_error err = {0};
    for (size_t i = 0; i < config->n_warnings; i++)
        print_finding("environment", false, config->warnings[i], NULL);
    struct layout layout = {0};
    bool found = layout_find(&layout, config, &err) == 0;
    KG_AUTO(kernelspecs) specs = found ? kernelspecs_load(layout.kernelspec_dir, &err) : NULL;
    struct choices choices = {.config = config, .specs = specs};
    if (specs)
        choices.default_spec = kernelspecs_find(specs, config->default_kernel, &err);
    bool works = choices.default_spec != NULL;
    bool servers_work = true;
    struct state_trial trial;
    if (!works)
        print_finding(specs ? "default kernel" : "kernelspecs", false, err.message, NULL);
    else if (state_make_trial(&trial, config->state_dir, &err) < 0)
        print_finding("state folder", works = false, err.message, NULL);
    if (works) {
        struct engine_settings engine;
        engine_settings_init(&engine, config, &layout, specs, trial.dir, "aaaaaaaa");
        if (!has_image(config))
            show_kernels(&engine, specs, &layout);
        works = check_user(config);
        servers_work = tool_servers_try(config, print_finding, NULL);
        choices.traits = provisioner_doctor(&engine.settings, print_finding, NULL);
        works &= choices.traits.engine && has_default_kernel(&engine, &choices);
        show_versions(config);
        show_choices(&choices);
        engine_settings_fini(&engine);
        state_drop_trial(&trial);
    }
    layout_fini(&layout);
    puts(works ? "\nSandboxes work on this machine." : "\nSandboxes do not work yet.");
    if (!servers_work)
        puts("Not all MCP servers of the setting mcp-servers work.");
    return works && servers_work ? 0 : 1;
}

int
command_doctor(int argc, char **argv)
{
    if (config_asks_for_help(argc, argv)) {
        puts("usage: kernelgate doctor [FLAGS]\n\n"
             "Says whether sandboxes work on this machine, and what is missing.\n");
        config_print_help(stdout, CONFIG_DOCTOR);
        return 0;
    }
    struct kg_error err = {0};
    struct config config;
    int code = 2;
    if (config_load(&config, CONFIG_DOCTOR, argc, argv, NULL, &err) < 0)
        fprintf(stderr, "kernelgate: %s\n", err.message);
    else
        code = examine(&config);
    config_fini(&config);
    return code;
}
