import type { DrainConfig, OpsConfig, ServingProgram } from '#runtime/config';
import { openOps, type Ops } from '#runtime/ops/ops';
import { type ProgramContext, runProgram } from '#runtime/process/lifecycle';

type Service<Config> = ProgramContext & { config: Config; ops: Ops };

/** Runs a program until it is stopped, and ends the process. */
export async function runService<Config extends { drain: DrainConfig; ops: OpsConfig }>(
  name: ServingProgram,
  readConfig: () => Config,
  main: (service: Service<Config>) => Promise<void>,
): Promise<never> {
  const code = await runProgram(name, async (program) => {
    const config = readConfig();
    program.drainAs(config.drain);
    await main({ ...program, config, ops: await openOps(name, config.ops, program) });
  });
  process.exit(code);
}
