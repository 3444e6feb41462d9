import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { OperationSpec } from '#api/openapi/operation-spec';
import type { OpenApiContent, OpenApiDocument } from '#api/openapi/types';
import { openApiReader, step } from './served-openapi.js';

/** What is true of a good OpenAPI document, of whichever API: each of its own specs, and of nothing else. */
export function checkOpenApi(
  title: string,
  document: OpenApiDocument,
  specs: readonly OperationSpec[],
): void {
  const api = openApiReader(document);
  const schemas = document.components.schemas;

  /** Every place in the document that has a schema and examples of it. */
  function contents(): [where: string, content: OpenApiContent][] {
    return api.operations.flatMap(({ path, method, operation }) => {
      const at = ['paths', path, method.toLowerCase()];
      const found: [string[], OpenApiContent][] = [];
      for (const [type, content] of Object.entries(operation.requestBody?.content ?? {})) {
        found.push([[...at, 'requestBody', 'content', type], content]);
      }
      for (const [status, response] of Object.entries(operation.responses)) {
        for (const [type, content] of Object.entries(response.content ?? {})) {
          found.push([[...at, 'responses', status, 'content', type], content]);
        }
      }
      return found.map(([place, content]): [string, OpenApiContent] => [
        place.map(step).join(''),
        content,
      ]);
    });
  }

  describe('the OpenAPI document', () => {
    it('is OpenAPI 3.1 in its outline', () => {
      expect(document).toMatchObject({
        openapi: '3.1.1',
        info: { title, version: '1.0.0' },
        servers: [{ url: '/' }],
      });
      const known = [
        'openapi',
        'jsonSchemaDialect',
        'info',
        'servers',
        'tags',
        'paths',
        'components',
      ];
      expect(Object.keys(document).filter((name) => !known.includes(name))).toEqual([]);
      for (const name of Object.keys(schemas)) expect(name).toMatch(/^[A-Za-z0-9]+$/);
    });

    it('has no reference that leads nowhere, and no schema that nothing leads to', () => {
      const leads = new Set<string>();
      for (const [, { $ref }] of nodes(document)) if (typeof $ref === 'string') leads.add($ref);
      for (const $ref of leads) {
        const [, , group = '', name = ''] = $ref.split('/');
        expect(document.components[group], $ref).toHaveProperty([name]);
      }
      const unused = Object.keys(schemas).filter((id) => !leads.has(`#/components/schemas/${id}`));
      expect(unused).toEqual([]);
    });

    it('names each operation once, and each of its parameters where it is', () => {
      expect(new Set(api.operations.map(({ id }) => id)).size).toBe(specs.length);
      const tags = document.tags.map(({ name }) => name);
      for (const { id, path, operation } of api.operations) {
        const names = operation.parameters.map((one) => `${one.in} ${one.name.toLowerCase()}`);
        expect(new Set(names).size, id).toBe(names.length);
        const inPath = operation.parameters.filter((one) => one.in === 'path');
        expect(inPath.map(({ name }) => `{${name}}`)).toEqual(path.match(/\{\w+\}/g) ?? []);
        for (const tag of operation.tags) expect(tags).toContain(tag);
        for (const [status, response] of Object.entries(operation.responses)) {
          expect(status).toMatch(/^[1-5][0-9]{2}$/);
          expect(response.description.length).toBeGreaterThan(0);
        }
      }
    });

    it('has schemas that ajv takes in its strict mode', () => {
      for (const id of Object.keys(schemas)) api.validatorAt(`/components/schemas/${id}`);
    });

    it('says the same of what is sent and of what is answered', () => {
      // A schema that turned one thing into another would have two sides, and need two names.
      for (const spec of specs) {
        const bodies = Object.values(spec.responses).flatMap(({ content = {} }) =>
          Object.values(content),
        );
        for (const schema of [...bodies, spec.body?.schema]) {
          if (schema === undefined || typeof schema === 'string') continue;
          const sides = (['input', 'output'] as const).map((io) => z.toJSONSchema(schema, { io }));
          expect(sides[0]).toEqual(sides[1]);
        }
      }
    });

    it('has body examples that the operations themselves take', () => {
      for (const { body } of specs) {
        for (const example of Object.values(body?.examples ?? {})) body!.schema.parse(example);
      }
    });

    it('has an example of every JSON body', () => {
      for (const [where, { examples }] of contents()) {
        if (/[/+]json$/.test(where)) expect(examples, where).not.toEqual({});
      }
    });

    it.each(contents())('has a schema at %s that its examples fit', (where, content) => {
      if (content.schema === undefined) return;
      const validate = api.validatorAt(`${where}/schema`);
      for (const [name, { value }] of Object.entries(content.examples ?? {})) {
        validate(value);
        expect({ name, errors: validate.errors }).toEqual({ name, errors: null });
      }
    });
  });
}

/** Every object in the document, with where it is. */
function* nodes(node: unknown, at = ''): Generator<[string, Record<string, unknown>]> {
  if (node === null || typeof node !== 'object') return;
  yield [at, node as Record<string, unknown>];
  for (const [name, child] of Object.entries(node)) yield* nodes(child, at + step(name));
}
