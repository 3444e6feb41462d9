import { z } from 'zod';
import { OperatorError } from '../operator-error.js';

/** The process environment, or what a test passes in its stead. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Every problem of the configuration at once, each saying what to set. */
export class ConfigError extends OperatorError {
  override name = 'ConfigError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`The configuration is not usable:\n${problems.map((one) => `  - ${one}`).join('\n')}`);
    this.problems = problems;
  }
}

/** An empty variable counts as unset; variables that `shape` does not name are never looked at. */
export function read<Shape extends z.ZodRawShape>(
  env: Environment,
  shape: Shape,
): z.output<z.ZodObject<Shape>> {
  const given = Object.fromEntries(
    Object.keys(shape)
      .map((name) => [name, env[name]?.trim()] as const)
      .filter(([, value]) => value !== undefined && value !== ''),
  );
  const result = z.object(shape).safeParse(given);
  if (result.success) return result.data;
  throw new ConfigError(
    result.error.issues.map((issue) => `${issue.path.join('.')} ${issue.message}`),
  );
}
