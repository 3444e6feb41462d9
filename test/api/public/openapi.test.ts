import { describe, expect, it } from 'vitest';
import { openApiDocument } from '#api/openapi/document';
import type { OpenApiDocument } from '#api/openapi/types';
import { BY_PATH, lookupAt, VERIFY } from '#api/public/lookup/routes';
import { publicDescription } from '#api/public/openapi/description';
import { pathPattern } from '#api/public/operation';
import { OPERATIONS } from '#api/public/operations';
import { VIEW_PATHS } from '#api/public/views/views';
import { PROBLEMS } from '#api/public/http/problem';
import { checkOpenApi } from '../../fixtures/openapi-checks.js';

const specs = OPERATIONS.map(({ spec }) => spec);
const document = JSON.parse(
  JSON.stringify(openApiDocument(specs, publicDescription())),
) as OpenApiDocument;

checkOpenApi('Public verification API', document, specs);

describe('public OpenAPI document', () => {
  it('has no credentials and no write operations', () => {
    expect(document.components).not.toHaveProperty('securitySchemes');
    for (const { method, path } of specs) {
      expect(method === 'get' || path === VERIFY, path).toBe(true);
    }
    for (const methods of Object.values(document.paths)) {
      for (const { security } of Object.values(methods)) expect(security).toEqual([]);
    }
  });

  it('documents exactly the lookups of the fast path', () => {
    const ends = [...new Set(Object.values(VIEW_PATHS).flatMap((views) => [...views.keys()]))];
    const candidates = Object.keys(BY_PATH).flatMap((name) =>
      [`${VERIFY}/${name}/{}`, `/api/public/${name}/{}`].flatMap((path) => [
        path,
        ...ends.map((end) => `${path}/${end}`),
      ]),
    );
    // The proof route takes the rest of the path as the identifier.
    const isOther = (path: string) => !path.startsWith(`${VERIFY}/proof/{}/`);
    const taken = candidates.filter(isOther).filter((path) => lookupAt(path) !== null);
    expect(lookupAt(`${VERIFY}?q=x`)).not.toBeNull();
    taken.push(VERIFY);
    const documented = specs
      .filter(({ tag, method }) => ['Verification', 'Artifacts'].includes(tag) && method === 'get')
      .map(({ path }) => path.replaceAll(/\{\w+\}/g, '{}'));
    expect(documented.sort()).toEqual(taken.sort());
  });

  it('matches each path with one route', () => {
    const paths = [...new Set(specs.map(({ path }) => path))];
    const patterns = paths.map((path) => pathPattern(specs.find((one) => one.path === path)!));
    for (const path of paths) {
      const asked = path.replaceAll(/\{\w+\}/g, 'a.b%2F');
      expect(
        patterns.filter((pattern) => pattern.test(asked)),
        path,
      ).toHaveLength(1);
    }
  });

  it('documents every problem code in an operation or the guide', () => {
    const text = JSON.stringify(document);
    for (const code of Object.keys(PROBLEMS)) expect(text).toContain(code);
  });
});
