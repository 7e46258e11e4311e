// SPDX-License-Identifier: Apache-2.0
// The table of settings as text for people.

#include <string.h>

#include "config_priv.h"

bool
config_asks_for_help(int argc, char *const argv[])
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

void
config_print_help(FILE *out, enum config_command command)
{
    for (size_t i = 0; i < config_n_settings; i++) {
        const struct setting *setting = &config_settings[i];
        if (!(setting->commands & (int)command))
            continue;
        KG_AUTO_FREE char *flag =
            kg_asprintf("--%s%s", setting->name, setting->type == SETTING_FLAG ? "" : " VALUE");
        fprintf(out, "  %-30s %s", flag, setting->help);
        if (setting->unit)
            fprintf(out, " (%s)", setting->unit);
        for (size_t c = 0; setting->choices && setting->choices[c]; c++)
            fprintf(out, "%s%s", c ? ", " : ": ", setting->choices[c]);
        if (setting->fallback && setting->type != SETTING_FLAG)
            fprintf(out, " [%s]", setting->fallback);
        fputc('\n', out);
    }
    fputs("\nEvery setting can also be given as KERNELGATE_<NAME> in the environment,\n"
          "with _ for -, and the older names that docs/settings.md lists work too.\n",
          out);
}

void
config_print_markdown(FILE *out)
{
    fputs("| setting | default | bounds | older names | what it is |\n|---|---|---|---|---|\n",
          out);
    for (size_t i = 0; i < config_n_settings; i++) {
        const struct setting *setting = &config_settings[i];
        fprintf(out, "| `%s`%s%s%s | %s | ", setting->name, setting->unit ? " (" : "",
                setting->unit ? setting->unit : "", setting->unit ? ")" : "",
                setting->fallback ? setting->fallback : "");
        if (setting->type == SETTING_INTEGER || setting->type == SETTING_REAL)
            fprintf(out, "%.15g to %.15g", setting->min, setting->max);
        for (size_t c = 0; setting->choices && setting->choices[c]; c++)
            fprintf(out, "%s%s", c ? ", " : "", setting->choices[c]);
        fputs(" | ", out);
        for (size_t a = 0; a < SETTING_MAX_ALIASES && setting->aliases[a].env; a++)
            fprintf(out, "%s`%s`", a ? ", " : "", setting->aliases[a].env);
        fprintf(out, " | %s |\n", setting->help);
    }
}
