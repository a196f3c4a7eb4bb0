// Shows the OpenAPI document of the service that the page comes from.
"use strict";

const element = (id) => document.getElementById(id);

function made(name, text, attributes = {}) {
  const node = Object.assign(document.createElement(name), attributes);
  if (text) node.textContent = text;
  return node;
}

function table(heads, rows) {
  const table = made("table");
  const head = table.createTHead().insertRow();
  for (const text of heads) head.append(made("th", text, { scope: "col" }));
  const body = table.createTBody();
  for (const cells of rows) {
    const row = body.insertRow();
    for (const content of cells) row.insertCell().append(content);
  }
  return table;
}

// Returns the words for a schema; a reference is a link to its section.
function typeOf(schema) {
  if (!schema) return "any";
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    return made("a", name, { href: `#schema-${name}` });
  }
  if (schema.enum) return schema.enum.join(", ");
  if (schema.type === "array") {
    const list = made("span", "list of ");
    list.append(typeOf(schema.items));
    return list;
  }
  if (schema.properties) {
    const names = Object.keys(schema.properties);
    return `object with ${names.join(", ")}`;
  }
  const limits = [];
  if (schema.format) limits.push(schema.format);
  if (schema.minimum !== undefined) limits.push(`from ${schema.minimum}`);
  if (schema.maximum !== undefined) limits.push(`up to ${schema.maximum}`);
  if (schema.maxLength !== undefined) limits.push(`${schema.maxLength} characters at most`);
  const type = [schema.type].flat().join(" or ");
  return limits.length ? `${type}, ${limits.join(", ")}` : type;
}

function contentOf(content = {}) {
  const cell = made("span");
  for (const [mediaType, { schema }] of Object.entries(content)) {
    const line = made("div");
    line.append(made("code", mediaType), " ", schema && (schema.$ref || schema.properties) ? typeOf(schema) : "");
    cell.append(line);
  }
  return cell;
}

function operationOf(path, method, operation) {
  const article = made("article", "", { id: operation.operationId });
  const title = made("h3");
  title.append(made("span", method.toUpperCase(), { className: "method" }), " ", made("code", path));
  article.append(title, made("p", operation.summary));
  const needsToken = operation.security.length > 0;
  if (needsToken) {
    const isFree = operation.security.some((scheme) => Object.keys(scheme).length === 0);
    const token = isFree ? "Needs a token, unless reading is public." : "Needs a token, if there are tokens.";
    const password = "Needs the name and the password of a user, if the server has users.";
    article.append(made("p", operation.security.some((scheme) => scheme.password) ? password : token, { className: "note" }));
  }
  if (operation.parameters.length) {
    article.append(made("h4", "Parameters"), table(["Name", "In", "Type", "Meaning"], operation.parameters.map((parameter) =>
      [made("code", parameter.name + (parameter.required ? "" : "?")), parameter.in, typeOf(parameter.schema), parameter.description])));
  }
  if (operation.requestBody) {
    article.append(made("h4", operation.requestBody.required ? "Body" : "Body, which may be left out"), contentOf(operation.requestBody.content));
  }
  const details = made("details");
  details.append(made("summary", "Answers"), table(["Status", "Meaning", "Content"], Object.entries(operation.responses).map(([status, answer]) =>
    [status, answer.description, contentOf(answer.content)])));
  article.append(details);
  return article;
}

function schemaOf(name, schema) {
  const article = made("article", "", { id: `schema-${name}` });
  article.append(made("h3", name));
  const required = schema.required || [];
  article.append(table(["Field", "Type", "Meaning"], Object.entries(schema.properties || {}).map(([field, of]) =>
    [made("code", field + (required.includes(field) ? "" : "?")), typeOf(of), of.description || ""])));
  return article;
}

// Returns the section of a tag, which gets its operations, and the list of links to them.
function groupOf(tag) {
  const section = made("section", "", { id: `tag-${tag.name}` });
  section.append(made("h2", tag.description));
  const contents = made("p", `${tag.description}: `);
  element("operations").append(section);
  element("contents").append(contents);
  return { section, contents };
}

async function show() {
  const answer = await fetch("openapi.json");
  const openapi = await answer.json();
  element("title").textContent = `API of ${openapi.info.title}`;
  element("summary").textContent = `${openapi.info.summary}. Version ${openapi.info.version}, OpenAPI ${openapi.openapi}. A ? marks what may be left out.`;
  const groups = new Map(openapi.tags.map((tag) => [tag.name, groupOf(tag)]));
  for (const [path, methods] of Object.entries(openapi.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const { section, contents } = groups.get(operation.tags[0]);
      contents.append(made("a", operation.operationId, { href: `#${operation.operationId}` }), " ");
      section.append(operationOf(path, method, operation));
    }
  }
  for (const [name, schema] of Object.entries(openapi.components.schemas)) element("schemas").append(schemaOf(name, schema));
  element("state").textContent = `${document.querySelectorAll("#operations article").length} operations`;
}

show().catch(() => {
  element("state").textContent = "the service does not answer";
  element("state").className = "state bad";
});
