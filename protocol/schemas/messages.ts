import type * as z from 'zod';

const UNITS: Partial<Record<string, string>> = { string: 'character', array: 'item' };

const TYPES: Partial<Record<string, string>> = {
  array: 'an array',
  boolean: 'true or false',
  int: 'an integer',
  null: 'null',
  object: 'an object',
  record: 'an object',
  tuple: 'an array',
};

const listed = (values: readonly unknown[]): string =>
  values.map((value) => JSON.stringify(value)).join(', ');

function sized(bound: string, size: number | bigint, origin: string): string {
  const unit = UNITS[origin];
  const plural = unit !== undefined && Number(size) !== 1 ? 's' : '';
  return `expected ${bound} ${String(size)}${unit === undefined ? '' : ` ${unit}`}${plural}`;
}

/** The message of a fault for which the schema has no message of its own. */
function describeFault(issue: z.core.$ZodRawIssue): string {
  if (issue.input === undefined && (issue.path ?? []).length > 0) return 'is required';
  switch (issue.code) {
    case 'invalid_type':
      return `expected ${TYPES[issue.expected] ?? `a ${issue.expected}`}`;
    case 'invalid_value':
      return `expected ${issue.values.length === 1 ? '' : 'one of '}${listed(issue.values)}`;
    case 'too_small':
      return sized(issue.exact ? 'exactly' : 'at least', issue.minimum, issue.origin);
    case 'too_big':
      return sized(issue.exact ? 'exactly' : 'at most', issue.maximum, issue.origin);
    case 'invalid_format':
      return issue.pattern === undefined
        ? `expected the format ${issue.format}`
        : `expected a string that matches ${issue.pattern}`;
    case 'unrecognized_keys':
      return `unknown member${issue.keys.length === 1 ? '' : 's'} ${listed(issue.keys)}`;
    case 'invalid_union':
      return Array.isArray(issue.options)
        ? `expected one of ${listed(issue.options)}`
        : 'has none of the allowed forms';
    case 'invalid_key':
      return 'has an invalid name';
    case 'custom':
    case 'invalid_element':
    case 'not_multiple_of':
      return 'has an invalid value';
  }
}

const OPTIONS = { error: describeFault };

/**
 * `schema.safeParse` with these messages. Not set with `z.config`, which would also change the messages of a program
 * that uses the SDK. Parses with the messages only after a fault, because these options make a parse several times
 * slower.
 */
export function safeParse<T extends z.ZodType>(
  schema: T,
  value: unknown,
): z.ZodSafeParseResult<z.output<T>> {
  const result = schema.safeParse(value);
  return result.success ? result : schema.safeParse(value, OPTIONS);
}
