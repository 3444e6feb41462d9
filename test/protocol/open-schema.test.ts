import { expect, it } from 'vitest';
import * as z from 'zod';
import { openSchema } from '#protocol/schemas/open-schema';

it('openSchema > rejects an unsupported kind of container', () => {
  const strict = z.strictObject({ a: z.string() });
  expect(() => openSchema(z.strictObject({ list: z.array(z.readonly(strict)) }))).toThrow(
    new TypeError('a schema of type readonly cannot be opened'),
  );
});
